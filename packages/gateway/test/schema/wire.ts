import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';

/** Builds a message, field by field in the order of the calls. */
export class Wire {
  private readonly writer = new BinaryWriter();

  varint(no: number, value: bigint | number): this {
    this.writer.tag(no, WireType.Varint).uint64(BigInt.asUintN(64, BigInt(value)));
    return this;
  }

  fixed32(no: number, value: number): this {
    this.writer.tag(no, WireType.Bit32).fixed32(value >>> 0);
    return this;
  }

  fixed64(no: number, value: bigint): this {
    this.writer.tag(no, WireType.Bit64).fixed64(BigInt.asUintN(64, value));
    return this;
  }

  double(no: number, value: number): this {
    this.writer.tag(no, WireType.Bit64).double(value);
    return this;
  }

  float(no: number, value: number): this {
    this.writer.tag(no, WireType.Bit32).float(value);
    return this;
  }

  text(no: number, value: string): this {
    return this.bytes(no, Buffer.from(value));
  }

  bytes(no: number, value: Uint8Array | readonly number[]): this {
    this.writer.tag(no, WireType.LengthDelimited).bytes(Uint8Array.from(value));
    return this;
  }

  message(no: number, value: Wire = wire()): this {
    return this.bytes(no, value.finish());
  }

  /** A group, which only old messages have; its fields are undeclared. */
  group(no: number, value: Wire): this {
    this.writer.tag(no, WireType.StartGroup).raw(value.finish()).tag(no, WireType.EndGroup);
    return this;
  }

  /** Packed varints. */
  packed(no: number, values: readonly (bigint | number)[]): this {
    this.writer.tag(no, WireType.LengthDelimited).fork();
    for (const value of values) this.writer.uint64(BigInt.asUintN(64, BigInt(value)));
    this.writer.join();
    return this;
  }

  raw(bytes: Uint8Array | readonly number[]): this {
    this.writer.raw(Uint8Array.from(bytes));
    return this;
  }

  /** Ends the message; a second call would end an empty one. */
  finish(): Uint8Array {
    return this.writer.finish();
  }
}

export function wire(): Wire {
  return new Wire();
}
