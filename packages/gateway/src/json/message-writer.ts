import type { DescMessage } from '@bufbuild/protobuf';
import type { JsonSink } from './json-sink.js';
import type { MemberWriter } from './member-writers.js';
import { WireError, type WireReader } from './wire-reader.js';

/** Printing this much takes well under a millisecond. */
const STEP_BYTES = 64 * 1024;

/** Where the scan records a field. */
interface Mark {
  readonly place: number;
  readonly isRepeated: boolean;
  /** Which member of a oneof this is, counted from 1; 0 outside of one. */
  readonly choice: number;
}

/**
 * Prints one message type. The wire may contain fields in any order and repeatedly, so a first pass
 * records where they are, and a second one prints them in order of declaration.
 */
export class MessageWriter {
  private readonly type: DescMessage;
  private readonly members: readonly MemberWriter[];
  /** By tag. Sparse, and few fields have high numbers. */
  private readonly marks: Mark[] = [];
  private readonly numbers = new Set<number>();
  private readonly frameSize: number;

  constructor(type: DescMessage, members: readonly MemberWriter[]) {
    this.type = type;
    this.members = members;
    let place = 1;
    for (const member of members) {
      member.place = place;
      place += 2;
      for (const { tag, choice } of member.tags) {
        this.marks[tag] = { place: member.place, isRepeated: member.isRepeated, choice };
        this.numbers.add(tag >>> 3);
      }
    }
    this.frameSize = place;
  }

  /** Prints the message that fills the reader, as an object. */
  writeBody(wire: WireReader, out: JsonSink): void {
    const start = out.at;
    this.writeMembers(wire, out);
    out.closeObject(start);
  }

  /** Prints the object's members, each with a comma before it. */
  writeMembers(wire: WireReader, out: JsonSink): void {
    const frame = this.scan(wire);
    for (const member of this.members) member.write(wire, out, frame);
    this.finish(wire, frame);
  }

  /** Prints the value of the only member, without its name. */
  writeOnlyValue(wire: WireReader, out: JsonSink): void {
    const frame = this.scan(wire);
    for (const member of this.members) member.writeValue(wire, out, frame);
    this.finish(wire, frame);
  }

  /** Prints the message as an object too, pausing after each part of the text. */
  *writeInSteps(wire: WireReader, out: JsonSink): Generator<void> {
    let pausedAt = out.at;
    for (const isDue of this.writeBodyInSteps(wire, out)) {
      if (!isDue && out.at - pausedAt < STEP_BYTES) continue;
      pausedAt = out.at;
      yield;
    }
  }

  /** Does what `writeBody` does, pausing within and after each member. */
  *writeBodyInSteps(wire: WireReader, out: JsonSink): Generator<boolean> {
    const start = out.at;
    const frame = this.scan(wire);
    for (const member of this.members) {
      if (member.writeItems) yield* member.writeItems(wire, out, frame);
      else member.write(wire, out, frame);
      yield false;
    }
    this.finish(wire, frame);
    out.closeObject(start);
  }

  /** Records the position of every field and returns the frame with the positions. */
  private scan(wire: WireReader): number {
    const frame = wire.openFrame(this.frameSize);
    const { frames } = wire;
    frames[frame] = wire.at;
    while (wire.at < wire.end) {
      const tagAt = wire.at;
      const tag = wire.tag();
      const mark = this.marks[tag];
      if (mark === undefined) this.expectUnknown(tag);
      else {
        const place = frame + mark.place;
        const count = frames[place + 1] as number;
        if (!mark.isRepeated) frames[place] = wire.at;
        else if (count === 0) frames[place] = tagAt;
        frames[place + 1] = mark.choice || count + 1;
      }
      wire.skip(tag);
    }
    return frame;
  }

  private finish(wire: WireReader, frame: number): void {
    wire.closeFrame(frame);
    wire.at = wire.end;
  }

  private expectUnknown(tag: number): void {
    if (!this.numbers.has(tag >>> 3)) return;
    throw new WireError(
      `The reply has field ${tag >>> 3} of ${this.type.typeName} in wire type ${tag & 7}`,
    );
  }
}
