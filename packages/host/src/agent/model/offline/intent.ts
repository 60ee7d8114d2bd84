import type { ModelTool, ModelToolResult } from '../model.js';

/** A model call, boiled down to what the rules look at. */
export interface OfflineRequest {
  readonly system: string;
  /** Every text of the conversation, oldest first. */
  readonly texts: readonly string[];
  /** The newest message of the user. */
  readonly said: string;
  readonly fileCount: number;
  /** How often tools have answered since then. */
  readonly step: number;
  /** What they answered last, if that is the newest of all. */
  readonly results: readonly ModelToolResult[];
  readonly tools: ReadonlyMap<string, ModelTool>;
  readonly now: Date;
}

export interface OfflineToolCall {
  readonly name: string;
  readonly input: Readonly<Record<string, unknown>>;
}

export interface OfflineReply {
  readonly text?: string;
  readonly calls?: readonly OfflineToolCall[];
  /** Waits this long between words. */
  readonly pauseMs?: number;
}

/** One rule: the reply, if the request is of its kind. */
export type Intent = (request: OfflineRequest) => OfflineReply | undefined;
