import type { AgentPart, AgentRequest } from './agent.js';
import { AgentTurn } from './agent-turn.js';
import { endWith } from './conversation/end-with.js';
import { warning } from './warning.js';

/**
 * Answers one message: asks the model, runs the tools it calls, and asks again until it answers.
 * Every `tool-start` is followed by its `tool-end`; an abort throws the signal's reason, a fault of
 * the model its ModelFault, a refusal of the meter or a hook its OracleError.
 */
export async function* runAgent(request: AgentRequest): AsyncGenerator<AgentPart> {
  const { model, signal } = request;
  const turn = new AgentTurn(request);
  for (;;) {
    const call = yield* turn.nextCall();
    signal.throwIfAborted();
    const step = turn.nextStep();
    try {
      // In this loop, not in a generator of its own: each one between costs every token.
      for await (const part of endWith(model.stream(call), signal)) {
        const shown = step.take(part);
        if (shown !== undefined) yield shown;
      }
    } finally {
      turn.count(call);
    }
    yield* step.warnings();
    await turn.endStep(call);
    if (turn.isOver) break;
    yield* turn.runTools(step);
  }
  if (!turn.hasSpoken) yield warning('no_answer', 'The model ended without an answer.');
}
