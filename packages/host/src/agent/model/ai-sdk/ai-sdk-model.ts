import type {
  LanguageModelV4,
  LanguageModelV4StreamPart,
  LanguageModelV4Usage,
  SharedV4ProviderOptions,
} from '@ai-sdk/provider';
import type { Model, ModelCall, ModelFinish, ModelPart, ModelUsage } from '../model.js';
import { faultOfKind } from '../provider-fault.js';
import { callOptionsOf } from './call-options.js';
import { StepRecorder } from './replay.js';
import { faultOfSdkError } from './sdk-fault.js';

export interface AiSdkModelOptions extends Omit<Model, 'stream'> {
  /** Loads the provider's package; called at the first use. */
  readonly load: () => Promise<LanguageModelV4>;
  readonly providerOptions?: SharedV4ProviderOptions | undefined;
}

/** A model behind the AI SDK's provider interface. */
export function createAiSdkModel({ load, providerOptions, ...info }: AiSdkModelOptions): Model {
  let loading: Promise<LanguageModelV4> | undefined;
  const open = () => {
    loading ??= load();
    return loading;
  };
  return {
    ...info,
    async *stream(call) {
      const cut = new AbortController();
      const abort = () => cut.abort(call.signal.reason);
      call.signal.throwIfAborted();
      call.signal.addEventListener('abort', abort, { once: true });
      try {
        const options = {
          ...callOptionsOf(call, info.id),
          ...(providerOptions && { providerOptions }),
        };
        const model = await open();
        const { stream } = await model.doStream({ ...options, abortSignal: cut.signal });
        yield* new StreamReader(info.id, call).read(stream);
      } catch (error) {
        call.signal.throwIfAborted();
        throw faultOfSdkError(error);
      } finally {
        call.signal.removeEventListener('abort', abort);
        // A consumer that stops early must not leave the provider talking.
        cut.abort();
      }
    },
  };
}

type SdkFinish = Extract<LanguageModelV4StreamPart, { type: 'finish' }>;

/** Turns one stream of the SDK's parts into ours. */
class StreamReader {
  readonly #step = new StepRecorder();
  readonly #model: string;
  readonly #call: ModelCall;
  #finish: SdkFinish | undefined;

  constructor(model: string, call: ModelCall) {
    this.#model = model;
    this.#call = call;
  }

  async *read(stream: ReadableStream<LanguageModelV4StreamPart>): AsyncGenerator<ModelPart> {
    for await (const part of stream) {
      const ours = this.#translate(part);
      if (ours) yield ours;
      else this.#call.onActivity?.();
    }
    yield this.#end();
  }

  #translate(part: LanguageModelV4StreamPart): ModelPart | undefined {
    switch (part.type) {
      case 'text-start':
      case 'reasoning-start':
        this.#step.open(kindOf(part.type), part.id, part.providerMetadata);
        return undefined;
      case 'text-delta':
      case 'reasoning-delta': {
        const type = kindOf(part.type);
        this.#step.add(type, part.id, part.delta, part.providerMetadata);
        return part.delta ? { type, text: part.delta } : undefined;
      }
      case 'text-end':
      case 'reasoning-end':
        this.#step.add(kindOf(part.type), part.id, '', part.providerMetadata);
        return undefined;
      case 'tool-call':
        if (part.providerExecuted) return undefined;
        this.#step.call(part.toolCallId, part.providerMetadata);
        return {
          type: 'tool-call',
          call: { id: part.toolCallId, name: part.toolName, input: part.input || '{}' },
        };
      case 'finish':
        this.#finish = part;
        return undefined;
      case 'error':
        throw faultOfSdkError(part.error);
      default:
        // Sources, files, metadata and what later versions add: nothing a turn shows.
        return undefined;
    }
  }

  #end(): ModelFinish {
    if (!this.#finish) throw faultOfKind('network', 'the stream ended before the answer');
    return {
      type: 'finish',
      reason: reasonOf(this.#finish.finishReason),
      usage: usageOf(this.#finish.usage),
      providerData: this.#step.dataFor(this.#model),
    };
  }
}

function kindOf(type: `${'text' | 'reasoning'}-${string}`): 'text' | 'reasoning' {
  return type.startsWith('text') ? 'text' : 'reasoning';
}

/** The reason in our words; throws if the answer is not whole. */
function reasonOf({ unified, raw }: SdkFinish['finishReason']): ModelFinish['reason'] {
  if (unified === 'interrupted') throw faultOfKind('network', 'the stream was interrupted');
  if (unified === 'error') throw faultOfKind('server', `the answer ended with ${raw}`);
  return unified;
}

function usageOf({ inputTokens, outputTokens }: LanguageModelV4Usage): ModelUsage {
  return {
    input: inputTokens.total ?? 0,
    output: outputTokens.total ?? 0,
    cached: inputTokens.cacheRead ?? 0,
  };
}
