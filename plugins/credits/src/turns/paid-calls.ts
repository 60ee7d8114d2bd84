import { type Middleware, OracleError, type TurnContext } from '@sibyl/plugin-kit';
import { estimateRequest } from './estimate-request.js';
import type { HoldsAtWork } from './holds-at-work.js';

/** Sees what each model is about to be sent, so that no call is made that could not be paid for. */
export const paidCalls = (holds: HoldsAtWork): Middleware => ({
  name: 'paid-calls',
  async beforeModel(request, turn) {
    const { agent, model } = request;
    const hold = holdOf(holds, turn);
    // Every turn has a hold from the gate: without one, the call could not be charged to anyone.
    if (!hold) throw new OracleError('gate_unavailable');
    await hold.prepare({ agent, model: model.id, input: estimateRequest(request) });
    return undefined;
  },
  afterModel({ agent }, turn) {
    holdOf(holds, turn)?.conclude({ agent });
  },
});

function holdOf(holds: HoldsAtWork, { user, session }: TurnContext) {
  return holds.find({ owner: user.did, sessionId: session.id, requestId: session.requestId });
}
