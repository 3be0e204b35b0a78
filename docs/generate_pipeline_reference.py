"""Write the JSON schemas and the key tables of pages from the tables of the readers.

Run it after a change of pipeline_file/file_keys.py or services/service_keys.py:
`python docs/generate_pipeline_reference.py`.
"""

from pathlib import Path

import batchyard
from batchyard.pipeline_file.key_reference import TABLES, with_key_tables
from batchyard.pipeline_file.schema import schema_text
from batchyard.services import service_keys

for name, tables in (("pipeline-file.md", TABLES), ("ecs.md", service_keys.TABLES)):
    page = Path(__file__).with_name(name)
    page.write_text(with_key_tables(page.read_text(encoding="utf-8"), tables), encoding="utf-8")
package = Path(batchyard.__file__)
package.with_name("pipeline.schema.json").write_text(schema_text(), encoding="utf-8")
package.with_name("service.schema.json").write_text(service_keys.schema_text(), encoding="utf-8")
