import type { Logger, TurnEmit } from '@sibyl/plugin-kit';
import { turnEmit } from '@sibyl/plugin-kit/rules';
import { describeIssues, type ReplyPart, runFrames } from '@sibyl/protocol';
import type { Run } from '../../store/runs/run.js';
import type { RunRecorder } from '../runs/run-recorder.js';

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
  return turnEmit(run, (part) => {
    const about = { sessionId, requestId, event: part.event };
    try {
      const faults = checksEvents ? faultsOf(part) : [];
      if (faults.length > 0) logger.error({ ...about, faults }, DROPPED);
      else recorder.write(part);
    } catch (err) {
      logger.error({ ...about, err }, DROPPED);
    }
  });
}

const DROPPED = 'an event of a plugin was dropped: its payload cannot be used';

function faultsOf({ event, data }: ReplyPart): string[] {
  return describeIssues(runFrames[event].safeParse(data).error?.issues ?? [], event);
}
