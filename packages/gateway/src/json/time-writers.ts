import { EmbeddedWriter } from './embedded-writer.js';
import { jsonBytes, type ValueWriter } from './value-writer.js';
import { durationText, goDuration, goTimeText, timestampText } from './values/times.js';
import { WIRE_TYPE, type WireReader } from './wire-reader.js';

/** The JSON of a Timestamp's or Duration's two fields. */
type TimeText = (seconds: number, nanos: number) => string;

const SECONDS_TAG = (1 << 3) | WIRE_TYPE.varint;
const NANOS_TAG = (2 << 3) | WIRE_TYPE.varint;
const YEAR_1 = jsonBytes('"0001-01-01T00:00:00Z"');

export const TIMESTAMP: ValueWriter = timeWriter(timestampText);
export const DURATION: ValueWriter = timeWriter(durationText);

/** Go's own time, which begins in the year 1 and is replaced as a whole. */
export const STD_TIME: ValueWriter = wholeWriter(TIMESTAMP, YEAR_1);
export const STD_DURATION: ValueWriter = wholeWriter(
  timeWriter((seconds, nanos) => {
    goDuration(seconds, nanos);
    return durationText(seconds, nanos);
  }),
  DURATION.zero(),
);

/** The same as `encoding/json` prints them. */
export const GO_TIME: ValueWriter = wholeWriter(timeWriter(goTimeText), YEAR_1);
export const GO_DURATION: ValueWriter = wholeWriter(
  timeWriter((seconds, nanos) => String(goDuration(seconds, nanos))),
  jsonBytes('0'),
);

function timeWriter(text: TimeText): EmbeddedWriter {
  return new EmbeddedWriter((wire, out) => {
    let seconds = 0;
    let nanos = 0;
    while (wire.at < wire.end) {
      const tag = wire.tag();
      wire.skip(tag);
      if (tag === SECONDS_TAG) seconds = wire.high * 2 ** 32 + (wire.low >>> 0);
      if (tag === NANOS_TAG) nanos = wire.low;
    }
    out.ascii(text(seconds, nanos));
  });
}

function wholeWriter(value: ValueWriter, zero: Uint8Array): ValueWriter {
  return {
    wireType: value.wireType,
    write: (wire: WireReader, out) => value.write(wire, out),
    zero: () => zero,
  };
}
