import { listUserParts, type ModelCall, ModelError, type ModelMessage } from '../models/model.js';
import type { Rejection } from '../models/rejections.js';
import { type Warning, warning } from './agent.js';
import type { Compactor } from './context-budget.js';

/** Repeats calls that the model refused in another form: shorter, without images or without tools. Created with the first refusal. */
export class CallRecovery {
  /** What the model refused. */
  private readonly refused = new Set<Rejection['of']>();

  constructor(private readonly compactor: Compactor) {}

  /** Whether the next call may offer tools. */
  get allowsTools(): boolean {
    return !this.refused.has('tools');
  }

  /** Returns what to report before the call is repeated; undefined if nothing can be done about the error. */
  recover(error: unknown, call: ModelCall): readonly Warning[] | undefined {
    const rejection = error instanceof ModelError ? error.rejection : undefined;
    if (!rejection || this.refused.has(rejection.of)) return undefined;
    this.refused.add(rejection.of);
    return this.change(rejection, call);
  }

  private change(rejection: Rejection, call: ModelCall): readonly Warning[] | undefined {
    switch (rejection.of) {
      case 'context':
        this.compactor.shrink(call, rejection);
        return [];
      case 'images':
        return leaveOut(
          call.messages.some(hasImage),
          warning('images_left_out', rejection.isLasting ? BLIND : UNUSABLE),
        );
      case 'tools':
        return leaveOut(call.tools.length > 0, warning('tools_left_out', NO_TOOLS));
      case 'tool-choice':
        return leaveOut(call.toolChoice, warning('tool_choice_left_out', NO_CHOICE));
      case 'reasoning':
        return call.reasoning ? [warning('reasoning_left_out', NO_REASONING)] : [];
      case 'schema':
        // The answer is validated in any case.
        return call.responseSchema ? [] : undefined;
      default:
        return rejection satisfies never;
    }
  }

  /** After an answer: a later call of the turn, which has more to send, may be shortened again. */
  succeed(): void {
    this.refused.delete('context');
  }

  /** Removes what the model refused. */
  adapt(call: ModelCall): ModelCall {
    const adapted: ModelCall = {
      ...call,
      ...(this.refused.has('tool-choice') && { toolChoice: undefined }),
      ...(this.refused.has('schema') && { responseSchema: undefined }),
      ...(this.refused.has('reasoning') && { reasoning: 'omit' }),
    };
    return this.refused.has('images') ? withoutImages(adapted) : adapted;
  }
}

/** Replaces the images of a call by text. */
export function withoutImages(call: ModelCall): ModelCall {
  if (!call.messages.some(hasImage)) return call;
  return { ...call, messages: call.messages.map(describeImages) };
}

const leaveOut = (sent: unknown, left: Warning) => (sent ? [left] : undefined);

const BLIND = 'The model cannot see images: it answers without them.';
const UNUSABLE =
  'The model did not accept an image of this conversation: it answers without images.';
const NO_TOOLS = 'The model does not support tools: it answers without them.';
const NO_CHOICE = 'The model cannot be forced to call a tool: it decides itself.';
const NO_REASONING = 'The model does not accept this effort of reasoning: it answers without it.';
const UNSEEN = '[An image is here, but you cannot see images]';

function hasImage(message: ModelMessage): boolean {
  if (message.role === 'user') return listUserParts(message).some(isImage);
  return message.role === 'tool' && message.results.some(({ media }) => media?.some(isImage));
}

function isImage(part: object): boolean {
  return 'mediaType' in part && String(part.mediaType).startsWith('image/');
}

function describeImages(message: ModelMessage): ModelMessage {
  // The output of a tool describes its media.
  if (message.role === 'tool')
    return { ...message, results: message.results.map(({ media, ...result }) => result) };
  if (message.role !== 'user' || typeof message.content === 'string') return message;
  const content = message.content.map((part) =>
    isImage(part) ? { type: 'text' as const, text: UNSEEN } : part,
  );
  return { ...message, content };
}
