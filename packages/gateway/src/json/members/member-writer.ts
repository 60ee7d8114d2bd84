import type { JsonSink } from '../json-sink.js';
import type { WireReader } from '../wire-reader.js';

/** Prints one member of an object: a field, or a oneof, of which at most one field is there. */
export interface MemberWriter {
  /** The tags its values come under. */
  readonly tags: readonly { readonly tag: number; readonly choice: number }[];
  readonly isRepeated: boolean;
  /**
   * Where in a message's frame the member's two notes are, set by the message. They are the place of the
   * value (of the first tag if repeated) and how many there were (the choice of a oneof); 0 for none.
   */
  place: number;
  /** Prints a comma, the name and the value, unless the member is left out. */
  write(wire: WireReader, out: JsonSink, frame: number): void;
  writeValue(wire: WireReader, out: JsonSink, frame: number): void;
  /** Does what `write` does, pausing after each item; only lists have this. */
  writeItems?(wire: WireReader, out: JsonSink, frame: number): Generator<void>;
}
