import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';

type WireValue = bigint | Uint8Array;

/** Iterates over a message without its descriptor, for messages that are read before the schema is known. */
export function* wireFields(message: Uint8Array): Generator<[number, WireValue]> {
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const [number, type] = reader.tag();
    if (type === WireType.Varint) yield [number, BigInt(reader.uint64())];
    else if (type === WireType.LengthDelimited) yield [number, reader.bytes()];
    else reader.skip(type, number);
  }
}

/** The strings, bytes or messages of one field, in order. */
export function bytesFields(message: Uint8Array, field: number): Uint8Array[] {
  return [...wireFields(message)].flatMap(([number, value]) =>
    number === field && typeof value !== 'bigint' ? [value] : [],
  );
}

/** The message at the end of a path of field numbers; empty if absent. */
export function messageAt(message: Uint8Array, path: readonly number[]): Uint8Array {
  return path.reduce((at, field) => bytesFields(at, field)[0] ?? new Uint8Array(), message);
}

/** A non-negative integer field; 0 if absent. */
export function integerField(message: Uint8Array, field: number): number {
  const found = [...wireFields(message)].find(([number]) => number === field)?.[1];
  return typeof found === 'bigint' ? Number(found) : 0;
}
