import type { Route } from '../schema.js';
import type { SchemaGroup } from '../schema-source/schema-keeper.js';

/** One query of the chain, ready to be asked. */
export interface Question {
  readonly route: Route;
  readonly group: SchemaGroup;
  /** The request message, encoded. */
  readonly message: Uint8Array;
  /** Unset: the latest block. */
  readonly height: number | undefined;
  /** Sent along to the node; such a question is neither cached nor shared. */
  readonly metadata: Readonly<Record<string, string>> | undefined;
  readonly timeoutMs: number;
  /** Goes to the node even if the answer is known. */
  readonly isFresh: boolean;
}

/** A question as it came by HTTP. */
export interface AskedQuestion extends Question {
  /** The path to use instead of the one asked, where that is a legacy one. */
  readonly successor: string | undefined;
}
