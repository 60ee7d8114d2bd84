import { AsyncLocalStorage } from 'node:async_hooks';
import { type Middleware, OracleError, type TurnContext } from '@sibyl/plugin-kit';
import type { CallKey } from './credit-hold.js';
import { estimateRequest } from './estimate-request.js';
import type { HoldsAtWork } from './holds-at-work.js';

/** The agent that answers the message; every other one runs within a tool call. */
const MAIN: CallKey = Symbol('main');

/**
 * Sees what each model is about to be sent, so that no call is made that could not be paid for. An agent makes one call
 * at a time, but several of one name may run side by side: what tells them apart is the tool call they run in.
 */
export function paidCalls(holds: HoldsAtWork): Middleware {
  const toolCall = new AsyncLocalStorage<CallKey>();
  const currentKey = () => toolCall.getStore() ?? MAIN;
  return {
    name: 'paid-calls',
    async beforeModel(request, turn) {
      const call = { model: request.model.id, input: estimateRequest(request) };
      const hold = findHold(holds, turn);
      // Every turn has a hold from the gate: without one, the call could not be charged to anyone.
      if (!hold) throw new OracleError('gate_unavailable');
      await hold.prepare(currentKey(), call);
      return undefined;
    },
    afterModel(_, turn) {
      findHold(holds, turn)?.conclude(currentKey());
    },
    async wrapToolCall({ input, name }, next, turn) {
      const key: CallKey = Symbol(name);
      try {
        return await toolCall.run(key, next, input);
      } finally {
        // A sub-agent that failed or was stopped never reported the end of its call.
        findHold(holds, turn)?.conclude(key);
      }
    },
  };
}

function findHold(holds: HoldsAtWork, { user, session }: TurnContext) {
  return holds.find({ owner: user.did, sessionId: session.id, requestId: session.requestId });
}
