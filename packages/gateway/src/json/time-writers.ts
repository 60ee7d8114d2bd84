import { EmbeddedWriter } from './embedded-writer.js';
import type { JsonSink } from './json-sink.js';
import { jsonBytes, type ValueWriter } from './value-writer.js';
import {
  writeDuration,
  writeGoDuration,
  writeGoTime,
  writeStdDuration,
  writeTimestamp,
} from './values/times.js';
import { WIRE_TYPE } from './wire-reader.js';

/** Prints a Timestamp's or Duration's two fields. */
type PrintTime = (out: JsonSink, seconds: number, nanos: number) => void;

const SECONDS_TAG = (1 << 3) | WIRE_TYPE.varint;
const NANOS_TAG = (2 << 3) | WIRE_TYPE.varint;
const YEAR_1 = '"0001-01-01T00:00:00Z"';

export const TIMESTAMP: ValueWriter = timeWriter(writeTimestamp);
export const DURATION: ValueWriter = timeWriter(writeDuration);

/** Go's own types, which begin in the year 1 and are replaced as a whole. */
export const STD_TIME: ValueWriter = stdWriter(writeTimestamp, YEAR_1);
export const STD_DURATION: ValueWriter = stdWriter(writeStdDuration, '"0s"');

/** The same as `encoding/json` prints them. */
export const GO_TIME: ValueWriter = stdWriter(writeGoTime, YEAR_1);
export const GO_DURATION: ValueWriter = stdWriter(writeGoDuration, '0');

function timeWriter(print: PrintTime): EmbeddedWriter {
  return new EmbeddedWriter((wire, out) => {
    let seconds = 0;
    let nanos = 0;
    while (wire.at < wire.end) {
      const tag = wire.tag();
      wire.skip(tag);
      if (tag === SECONDS_TAG) seconds = wire.high * 2 ** 32 + (wire.low >>> 0);
      if (tag === NANOS_TAG) nanos = wire.low;
    }
    print(out, seconds, nanos);
  });
}

function stdWriter(print: PrintTime, zero: string): ValueWriter {
  const value = timeWriter(print);
  const zeroBytes = jsonBytes(zero);
  return {
    wireType: value.wireType,
    write: (wire, out) => value.write(wire, out),
    zero: () => zeroBytes,
  };
}
