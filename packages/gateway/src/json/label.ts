const STEP = 8;

/**
 * A comma, a name and a colon, as they stand before a value. They are half of most replies, so they are held as doubles
 * and copied eight bytes at a time; no eight bytes of ASCII are a NaN, which would lose its bits.
 */
export class Label {
  readonly length: number;
  readonly steps: Float64Array;

  constructor(name: string) {
    const text = `,"${name}":`;
    const bytes = Buffer.alloc(Math.ceil(text.length / STEP) * STEP);
    if (bytes.write(text, 'ascii') !== Buffer.byteLength(text)) {
      throw new TypeError(`${name} is no name of a field: those are ASCII`);
    }
    this.length = text.length;
    this.steps = new Float64Array(bytes.length / STEP).map((_, i) => bytes.readDoubleLE(i * STEP));
  }
}
