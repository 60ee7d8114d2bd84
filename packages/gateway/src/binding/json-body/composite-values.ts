import { WireType } from '@bufbuild/protobuf/wire';
import type { WireValue } from '../message-draft.js';

/** An Any that holds a message. */
export function anyValue(typeUrl: string, message: WireValue): WireValue {
  return {
    wireType: WireType.LengthDelimited,
    isZero: false,
    write(writer) {
      writer.fork().tag(1, WireType.LengthDelimited).string(typeUrl);
      // A message has its length before it, and so do bytes that hold one.
      message.write(writer.tag(2, WireType.LengthDelimited));
      writer.join();
    },
  };
}

/** An entry of a map, which on the wire is a message of key and value. */
export function mapEntryValue(key: WireValue, value: WireValue): WireValue {
  return {
    wireType: WireType.LengthDelimited,
    isZero: false,
    write(writer) {
      key.write(writer.fork().tag(1, key.wireType));
      value.write(writer.tag(2, value.wireType));
      writer.join();
    },
  };
}
