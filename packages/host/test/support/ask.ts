import type { ControlledHost } from './controlled-host.js';
import type { ControlledModel, ModelTurn } from './controlled-model.js';
import { openSession, type SseFrame, stream } from './stream.js';
import type { TestUser } from './user.js';

export interface AskResult {
  readonly sessionId: string;
  readonly frames: readonly SseFrame[];
  readonly text: string;
  /** Every model call that was played, in order. */
  readonly turns: readonly ModelTurn[];
}

type Play = (turn: ModelTurn) => void;

/** Sends a message and plays the model: one function per call, the last of which answers. */
export async function ask(
  { alice, model }: Pick<ControlledHost, 'alice' | 'model'>,
  plays: readonly Play[],
  body: Readonly<Record<string, unknown>> & { readonly sessionId?: string } = {},
): Promise<AskResult> {
  const { sessionId = await openSession(alice), ...message } = body;
  const live = await stream(alice, sessionId, { message: 'hello', ...message });
  const turns: ModelTurn[] = [];
  for (const play of plays) {
    const turn = await model.next();
    turns.push(turn);
    play(turn);
  }
  const frames = await live.toEnd();
  return { sessionId, frames, text: live.text, turns };
}

/** Makes the model answer. */
export const say =
  (text = 'ok'): Play =>
  (turn) =>
    turn.answer(text);

/** Makes the model call tools. */
export const call =
  (...calls: readonly (readonly [name: string, input?: object])[]): Play =>
  (turn) =>
    turn.call(...calls.map(([name, input = {}]) => ({ name, input })));

/** The payloads of one kind of frame. */
export const filterFrames = ({ frames }: Pick<AskResult, 'frames'>, event: SseFrame['event']) =>
  frames.filter((frame) => frame.event === event).map(({ data }) => data);

/** Makes the model call one tool in a new session; returns the outcome and the data of its last frame. */
export async function useTool(
  { user, model }: { readonly user: TestUser; readonly model: ControlledModel },
  name: string,
  input: object,
) {
  const exchange = await ask({ alice: user, model }, [call([name, input]), say('Done')]);
  const data = filterFrames(exchange, 'tool_call').at(-1) ?? {};
  return { status: data.status, output: JSON.parse(data.output ?? 'null'), data };
}
