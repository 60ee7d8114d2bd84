import { PARAGRAPH } from '../../agent/conversation.js';
import {
  type AgentStep,
  type AssistantMessage,
  buildCallPath,
  type InterruptAnswer,
} from '../../agent/steps.js';
import type { Interrupt } from '../../store/runs/pauses.js';
import type { Run } from '../../store/runs/run.js';
import type { RunStore } from '../../store/runs/run-store.js';
import { MessageParts } from './message-parts.js';
import { buildResumedFrame, buildRunFrame } from './run-log.js';

/** What earlier attempts of a turn have done. */
export interface TurnProgress {
  readonly steps: readonly AgentStep[];
  /** By the key of the interrupt. */
  readonly answers: ReadonlyMap<string, InterruptAnswer>;
}

/** What the attempts before a run have done, if there are any. */
export async function readProgress(runs: RunStore, run: Run): Promise<TurnProgress | undefined> {
  if (run.attempt === 1) return undefined;
  const [steps, interrupts] = await Promise.all([runs.steps(run), runs.interrupts(run)]);
  return { steps: steps as readonly AgentStep[], answers: new Map(interrupts.flatMap(toAnswer)) };
}

/** Collects the answer of earlier attempts from their steps: what came after the last step is not part of it. */
export function readSteps(steps: readonly AgentStep[]): MessageParts {
  const parts = new MessageParts();
  // Sub-agents are not part of the answer.
  for (const step of steps.filter(({ path }) => path === '')) {
    if (step.type === 'result') parts.endCall(step.call);
    if (step.type === 'model') addModelStep(parts, step.message);
  }
  return parts;
}

/**
 * Whether a call of a running turn was answered or approved and has not run since: it is stored that it runs before it
 * does.
 */
export function hasUnusedAnswer(steps: readonly AgentStep[]): boolean {
  const waiting = new Set<string>();
  for (const step of steps) {
    if (step.type === 'interrupt') waiting.add(buildCallPath(step.path, step.callId));
    if (step.type === 'retry') waiting.delete(buildCallPath(step.path, step.callId));
    if (step.type === 'result') waiting.delete(buildCallPath(step.path, step.call.id));
  }
  return waiting.size > 0;
}

function addModelStep(parts: MessageParts, message: AssistantMessage): void {
  const { text, reasoning, toolCalls = [] } = message;
  if (reasoning) parts.addReasoning(reasoning);
  if (text) parts.addText(parts.content === '' ? text : PARAGRAPH + text);
  for (const { id, name, input } of toolCalls)
    parts.startCall({ id, name, args: JSON.parse(input) });
}

/** Builds the first frame of a run; readers of earlier attempts keep what they have done. */
export const buildFirstFrame = (run: Run, progress: TurnProgress | undefined) =>
  progress ? buildResumedFrame(run, readSteps(progress.steps).content) : buildRunFrame(run);

/** An open interrupt has no answer. */
function toAnswer({ path, status, value }: Interrupt): [string, InterruptAnswer][] {
  switch (status) {
    case 'open':
      return [];
    case 'answered':
      return [[path, { status, value }]];
    default:
      return [[path, { status }]];
  }
}
