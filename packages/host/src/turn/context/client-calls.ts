import type { ClientCalls } from '@sibyl/plugin-kit';
import type { CallDesk, CallEvent } from '../../events/call-desk.js';
import type { Run } from '../../store/runs/run.js';
import type { RunRecorder } from '../runs/run-recorder.js';

type Request = Parameters<ClientCalls['call']>[0];

interface ClientCallsParts {
  readonly run: Pick<Run, 'owner' | 'sessionId' | 'requestId'>;
  readonly recorder: Pick<RunRecorder, 'write'>;
  readonly desk: CallDesk;
}

/** The `client` of a turn's context: calls go out as frames of the run and events of its session. */
export function createClientCalls({ run, recorder, desk }: ClientCallsParts): ClientCalls {
  const { owner, sessionId, requestId } = run;
  const send = ({ event, toolName, args }: Request, toolCallId: string): CallEvent => {
    const payload = { sessionId, requestId, toolCallId, toolName, args };
    const told =
      event === 'action_call'
        ? recorder.write({ event, data: { ...payload, status: 'isRunning' } })
        : recorder.write({ event, data: payload });
    if (told?.event !== event) throw new Error(`${toolName} was not run: the turn has ended.`);
    return told;
  };
  return {
    call: async (request) =>
      desk.call({ owner, sessionId }, { ...request, send: (id) => send(request, id) }),
  };
}
