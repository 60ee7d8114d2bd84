import type { UnknownField } from '@bufbuild/protobuf';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';

/** Options of a descriptor; those of extensions stay with it as they came over the wire. */
interface Options {
  readonly $unknown?: UnknownField[] | undefined;
}

const utf8 = new TextDecoder();

/** All values of an extension that holds text or a message, in order. */
export function extensionBytes(options: Options | undefined, number: number): Uint8Array[] {
  const fields = options?.$unknown ?? [];
  return fields
    .filter((field) => field.no === number && field.wireType === WireType.LengthDelimited)
    .map((field) => new BinaryReader(field.data).bytes());
}

export function extensionText(options: Options | undefined, number: number): string | undefined {
  const last = extensionBytes(options, number).at(-1);
  return last && utf8.decode(last);
}

export function extensionFlag(options: Options | undefined, number: number): boolean | undefined {
  const last = options?.$unknown?.findLast(
    (field) => field.no === number && field.wireType === WireType.Varint,
  );
  return last && new BinaryReader(last.data).bool();
}
