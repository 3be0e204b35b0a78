// The children of a step, from the binary records of child_table.py: 12 bytes each.

const RECORD = 12;

function decode(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

const decodeNumbers = (text) => new Uint32Array(decode(text).buffer);

export class Children {
  constructor() {
    this.size = 0;
    this.bytes = new Uint8Array(0);
    this.indices = null;
  }

  /** Take an event: all children, or those that changed. */
  take(event) {
    const records = decode(event.records);
    if (event.positions === undefined) {
      this.bytes = records;
      this.size = records.length / RECORD;
      if (event.indices !== undefined) this.setIndices(decodeNumbers(event.indices));
    } else {
      const positions = decodeNumbers(event.positions);
      positions.forEach((position, i) =>
        this.bytes.set(records.subarray(i * RECORD, (i + 1) * RECORD), position * RECORD),
      );
    }
    this.view = new DataView(this.bytes.buffer);
  }

  setIndices(indices) {
    this.indices = indices;
    this.positions = new Map([...indices].map((index, position) => [index, position]));
  }

  /** Number of the child in its step: a retry has only some children. */
  index(position) {
    return this.indices ? this.indices[position] : position;
  }

  positionOf(index) {
    const position = this.indices ? this.positions.get(index) : index;
    return position !== undefined && position >= 0 && position < this.size ? position : null;
  }

  state(position) {
    return this.bytes[position * RECORD];
  }
  attempts(position) {
    return this.bytes[position * RECORD + 1];
  }
  exitCode(position) {
    return this.view.getInt16(position * RECORD + 2, true);
  }
  seconds(position) {
    return this.view.getFloat32(position * RECORD + 4, true);
  }
  memory(position) {
    return this.view.getUint32(position * RECORD + 8, true);
  }
}
