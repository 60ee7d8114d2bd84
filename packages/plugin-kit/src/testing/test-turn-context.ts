import { randomUUID } from 'node:crypto';
import { type ReplyPart, runFrames } from '@sibyl/protocol';
import type { LoadedPlugin } from '../rules/set-up-plugin.js';
import { turnEmit } from '../rules/turn-emit.js';
import type { TurnContext, TurnEmit } from '../turn-context.js';
import { ownRoomOf } from './memory-keepers.js';
import { TEST_USER } from './test-options.js';
import { createTurnUcan } from './test-ucan.js';
import type { TestWorld } from './test-world.js';
import type { TurnParts } from './turn-parts.js';

/** What the plugins said in a turn. */
export interface TurnNotes {
  readonly events: ReplyPart[];
  readonly warnings: { readonly code: string; readonly message: string }[];
  readonly degraded: { readonly name: string; readonly missing: string }[];
  readonly faults: string[];
}

interface PluginTurnParts extends TurnParts {
  readonly plugin: LoadedPlugin;
  readonly shared: Readonly<Record<string, unknown>>;
}

/** What one plugin sees of a turn. */
export function turnContextOf(
  parts: PluginTurnParts,
  world: TestWorld,
  notes: TurnNotes,
): TurnContext {
  const { plugin, user: owner = TEST_USER, sessionId = 'test-session' } = parts;
  const place = { sessionId, requestId: randomUUID() };
  return {
    ...factsOf(parts, owner, place),
    config: plugin.config,
    ucan: createTurnUcan(world.options.delegated ?? []),
    sessionState: world.keepers.sessionState(owner, sessionId, plugin.name),
    secrets: world.keepers.secrets(owner, plugin.name),
    blobs: world.keepers.blobs(owner, plugin.name),
    llm: world.llm,
    emit: emitTo(notes, place),
    client: {
      call: async ({ signal: _, ...call }) => {
        if (world.options.page) return world.options.page(call);
        throw new Error('No page is connected: give createTestRuntime a page');
      },
    },
    shared: parts.shared,
    logger: world.logger,
    warn: (code, message) => void notes.warnings.push({ code, message }),
    degrade: (name, missing) => void notes.degraded.push({ name, missing }),
    signal: parts.signal ?? new AbortController().signal,
    toolCallId: '',
  };
}

interface Place {
  readonly sessionId: string;
  readonly requestId: string;
}

function factsOf(parts: PluginTurnParts, did: string, { sessionId, requestId }: Place) {
  const { roomId = ownRoomOf(did), client = 'api', matrix, metadata = {}, shared } = parts;
  const { tools, agActions, attachments = [], mcpInvocations = {} } = parts;
  const preferences = parts.preferences ?? shared.userPreferences ?? {};
  const { timezone = 'UTC', history = [] } = parts;
  return {
    user: { did, timezone, currentTime: new Date().toISOString(), ...(matrix && { matrix }) },
    session: { id: sessionId, requestId, roomId, client },
    history,
    state: { userPreferences: preferences, metadata },
    request: {
      ...(tools && { tools }),
      ...(agActions && { agActions }),
      attachments,
      mcpInvocations,
    },
  };
}

/** Takes what the contract allows, and notes the rest. */
const emitTo = ({ events, faults }: TurnNotes, place: Place): TurnEmit =>
  turnEmit(place, (part) => {
    const { error } = runFrames[part.event].safeParse(part.data);
    if (error) faults.push(`${part.event}: ${error.message}`);
    else events.push(part);
  });
