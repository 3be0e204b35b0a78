"""Write pipeline.schema.json and the key tables of docs/pipeline-file.md from the reader's tables.

Run it after a change of pipeline_file/file_keys.py: `python docs/generate_pipeline_reference.py`.
"""

from pathlib import Path

import batchyard
from batchyard.pipeline_file.key_reference import with_key_tables
from batchyard.pipeline_file.schema import schema_text

page = Path(__file__).with_name("pipeline-file.md")
page.write_text(with_key_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
Path(batchyard.__file__).with_name("pipeline.schema.json").write_text(
    schema_text(), encoding="utf-8"
)
