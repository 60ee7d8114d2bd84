import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';

/** A field as it is on the wire: an unsigned number, or bytes. */
export interface Decoded {
  readonly no: number;
  readonly wireType: WireType;
  readonly value: bigint | Uint8Array;
}

export function decode(bytes: Uint8Array): Decoded[] {
  const reader = new BinaryReader(bytes);
  const fields: Decoded[] = [];
  while (reader.pos < reader.len) {
    const [no, wireType] = reader.tag();
    fields.push({ no, wireType, value: readValue(reader, wireType, no) });
  }
  return fields;
}

function readValue(reader: BinaryReader, wireType: WireType, no: number): bigint | Uint8Array {
  if (wireType === WireType.Varint) return BigInt(reader.uint64());
  if (wireType === WireType.Bit32) return BigInt(reader.fixed32());
  if (wireType === WireType.Bit64) return BigInt(reader.fixed64());
  if (wireType === WireType.LengthDelimited) return reader.bytes();
  return reader.skip(wireType, no);
}

/** The values of a packed block. */
export function unpack(bytes: Uint8Array, wireType: WireType): bigint[] {
  const reader = new BinaryReader(bytes);
  const values: bigint[] = [];
  while (reader.pos < reader.len) values.push(readValue(reader, wireType, 0) as bigint);
  return values;
}
