import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';

export const ENTITY_PARAMS = 'ixo.entity.v1beta1.Query/Params';

/** A reply with one number. */
export function entityParams(createSequence: number): Uint8Array {
  const params = new BinaryWriter().tag(3, WireType.Varint).uint64(createSequence).finish();
  return new BinaryWriter().tag(1, WireType.LengthDelimited).bytes(params).finish();
}

/** A reply of about so many bytes. */
export function largeEntityParams(bytes: number): Uint8Array {
  const text = 'x'.repeat(bytes);
  const params = new BinaryWriter().tag(1, WireType.LengthDelimited).string(text).finish();
  return new BinaryWriter().tag(1, WireType.LengthDelimited).bytes(params).finish();
}
