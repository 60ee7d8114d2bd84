import type { JsonObject } from '@sibyl/protocol';

/** A user's room with this oracle. */
export interface RoomPlace {
  readonly owner: string;
  /** The user's own room with this oracle unless told. */
  readonly roomId?: string;
}

/** Keeps what belongs to a room rather than to a session, such as preferences. */
export interface RoomState {
  read(place: RoomPlace, key: string): Promise<JsonObject | undefined>;
  /** Replaces what is there by what `change` makes of it; two changes never lose one another. */
  update(
    place: RoomPlace,
    key: string,
    change: (current: JsonObject | undefined) => JsonObject,
  ): Promise<JsonObject>;
}
