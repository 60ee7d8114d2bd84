import { WireType } from '@bufbuild/protobuf/wire';
import type { WireValue } from './message-draft.js';
import type { SecondsAndNanos } from './text/times.js';

/** A Timestamp or a Duration. */
export function timeValue({ seconds, nanos }: SecondsAndNanos): WireValue {
  return {
    wireType: WireType.LengthDelimited,
    isZero: false,
    write(writer) {
      writer.fork();
      if (seconds !== 0n) writer.tag(1, WireType.Varint).int64(seconds);
      if (nanos !== 0) writer.tag(2, WireType.Varint).int32(nanos);
      writer.join();
    },
  };
}
