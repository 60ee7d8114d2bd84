import type { Logger, TurnEmit } from '@sibyl/plugin-kit';
import { type ReplyPart, runFrames } from '@sibyl/protocol';
import type { Run } from '../store/runs/run.js';
import type { RunRecorder } from './run-recorder.js';

interface TurnEmitParts {
  readonly run: Pick<Run, 'sessionId' | 'requestId'>;
  readonly recorder: Pick<RunRecorder, 'write'>;
  readonly logger: Logger;
  /** Whether payloads are checked first: while plugins are written, not while they are served. */
  readonly checksEvents: boolean;
}

/** The `emit` of a turn's context: what a plugin says becomes a frame of the run and an event of its session. */
export function createTurnEmit({ run, recorder, logger, checksEvents }: TurnEmitParts): TurnEmit {
  const { sessionId, requestId } = run;
  const place = { sessionId, requestId };
  const emit = (part: ReplyPart): void => {
    const { event } = part;
    try {
      const faults = checksEvents ? faultsOf(part) : [];
      if (faults.length > 0) logger.error({ ...place, event, faults }, DROPPED);
      else recorder.write(part);
    } catch (err) {
      logger.error({ ...place, event, err }, DROPPED);
    }
  };
  const timestamp = () => new Date().toISOString();
  return {
    toolCall: (payload) => emit({ event: 'tool_call', data: { ...payload, ...place } }),
    actionCall: (payload) => emit({ event: 'action_call', data: { ...payload, ...place } }),
    renderComponent: (payload) =>
      emit({ event: 'render_component', data: { ...payload, ...place } }),
    reasoning: (payload) =>
      emit({ event: 'reasoning', data: { ...payload, ...place, timestamp: timestamp() } }),
    browserToolCall: (payload) =>
      emit({ event: 'browser_tool_call', data: { ...payload, ...place } }),
    router: (payload) => emit({ event: 'router_update', data: { ...payload, ...place } }),
    messageCacheInvalidation: (payload) =>
      emit({
        event: 'message_cache_invalidation',
        data: { ...payload, ...place, status: 'done' },
      }),
  };
}

const DROPPED = 'an event of a plugin was dropped: its payload cannot be used';

function faultsOf({ event, data }: ReplyPart): string[] {
  const { issues = [] } = runFrames[event].safeParse(data).error ?? {};
  return issues.map(({ path, message }) => `${path.join('.')}: ${message}`);
}
