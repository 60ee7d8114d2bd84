import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';

type WireValue = bigint | Uint8Array;

/** Walks over a message without its descriptor, for the few that are read before there are any. */
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

/** The message at the end of a path of field numbers; empty if it is not there. */
export function messageAt(message: Uint8Array, path: readonly number[]): Uint8Array {
  return path.reduce((at, field) => bytesFields(at, field)[0] ?? new Uint8Array(), message);
}

/** An integer field that is no negative number; absent it is 0. */
export function integerField(message: Uint8Array, field: number): number {
  const found = [...wireFields(message)].find(([number]) => number === field)?.[1];
  return typeof found === 'bigint' ? Number(found) : 0;
}
