import { limitedList } from '@sibyl/protocol';
import { z } from 'zod';

/** Limits of a conversation that a client sends whole. */
const MAX_MESSAGES = 2_000;
const MAX_TEXT = 1_000_000;

const Text = z.string().max(MAX_TEXT);
/** Bytes in base64, or the address of a file; as long as a body may be. */
const Bytes = z.string().nullish();
const FileFields = z.looseObject({
  filename: z.string().max(255).nullish(),
  file_data: Bytes,
  file_url: Bytes,
});
const ContentPart = FileFields.extend({
  type: z.string(),
  text: Text.optional(),
  image_url: z.union([z.string(), z.looseObject({ url: z.string() })]).nullish(),
  file: FileFields.optional(),
});
const Content = z.union([Text, limitedList(ContentPart, { max: 1_000 })]).nullish();
const JsonSchema = z.record(z.string(), z.unknown());
const Metadata = z.record(z.string().max(64), z.string().max(512)).nullish();
const User = z.unknown().optional().describe('The person, if the access key is for several');
const Effort = z.enum(['none', 'minimal', 'low', 'medium', 'high', 'xhigh']).nullish();

export type FileFields = z.infer<typeof FileFields>;
export type ContentPart = z.infer<typeof ContentPart>;
export type Content = z.infer<typeof Content>;
export type Effort = z.infer<typeof Effort>;

const ChatToolCall = z.looseObject({
  id: z.string().max(200),
  function: z.looseObject({ name: z.string().max(200), arguments: Text }),
});

const ChatMessage = z.looseObject({
  role: z.enum(['system', 'developer', 'user', 'assistant', 'tool']),
  content: Content,
  tool_calls: limitedList(ChatToolCall, { max: 128 }).nullish(),
  tool_call_id: z.string().max(200).optional(),
});
export type ChatMessage = z.infer<typeof ChatMessage>;

const ChatFormat = z.discriminatedUnion('type', [
  z.looseObject({ type: z.literal('text') }),
  z.looseObject({ type: z.literal('json_object') }),
  z.looseObject({
    type: z.literal('json_schema'),
    json_schema: z.looseObject({ schema: JsonSchema.optional() }),
  }),
]);

const FUNCTION = z.literal('function', { error: 'only tools of type function are supported' });
const Choice = z.enum(['auto', 'none', 'required']);
const AllowedMode = z.enum(['auto', 'required']);

const ChatFunction = z.looseObject({
  type: FUNCTION,
  function: z.looseObject({ name: z.string() }),
});
const ChatToolChoice = z.union([
  Choice,
  ChatFunction,
  z.looseObject({
    type: z.literal('allowed_tools'),
    allowed_tools: z.looseObject({ mode: AllowedMode, tools: z.array(ChatFunction).max(128) }),
  }),
]);

const ResponseFunction = z.looseObject({ type: FUNCTION, name: z.string() });
const ResponseToolChoice = z.union([
  Choice,
  ResponseFunction,
  z.looseObject({
    type: z.literal('allowed_tools'),
    mode: AllowedMode,
    tools: z.array(ResponseFunction).max(128),
  }),
]);

const absent = (error: string) => z.null({ error }).optional();

const ONLY_TEXT = 'only text is supported';

/** Body of `POST /v1/chat/completions`; parameters of sampling are accepted and ignored. */
export const ChatRequest = z
  .looseObject({
    model: z.string().max(200),
    messages: limitedList(ChatMessage, { min: 1, max: MAX_MESSAGES }),
    stream: z.boolean().nullish(),
    stream_options: z.looseObject({ include_usage: z.boolean().optional() }).nullish(),
    tools: z
      .array(
        z.looseObject({
          type: FUNCTION,
          function: z.looseObject({
            name: z.string().max(64),
            description: z.string().max(4096).nullish(),
            parameters: JsonSchema.nullish(),
          }),
        }),
      )
      .max(128)
      .nullish(),
    tool_choice: ChatToolChoice.nullish(),
    functions: absent('functions are not supported; send tools'),
    modalities: z.array(z.literal('text', { error: ONLY_TEXT })).nullish(),
    audio: absent(ONLY_TEXT),
    response_format: ChatFormat.nullish(),
    reasoning_effort: Effort,
    n: z.literal(1, { error: 'only one choice is supported' }).nullish(),
    store: z.boolean().nullish(),
    user: User,
    safety_identifier: User,
    metadata: Metadata,
  })
  .meta({ id: 'OpenAiChatRequest' });
export type ChatRequest = z.infer<typeof ChatRequest>;

const InputItem = z.looseObject({
  type: z.string().optional(),
  id: z.string().max(200).nullish(),
  role: z.enum(['system', 'developer', 'user', 'assistant']).optional(),
  content: Content,
  call_id: z.string().max(200).optional(),
  name: z.string().max(200).optional(),
  arguments: Text.optional(),
  output: z.union([Text, limitedList(ContentPart, { max: 1_000 })]).optional(),
});
export type InputItem = z.infer<typeof InputItem>;

/** Body of `POST /v1/responses`; parameters of sampling are accepted and ignored. */
export const ResponseRequest = z
  .looseObject({
    model: z.string().max(200).optional(),
    input: z.union([Text.min(1), limitedList(InputItem, { min: 1, max: MAX_MESSAGES })]),
    instructions: Text.nullish(),
    previous_response_id: z.string().max(200).nullish(),
    conversation: absent('conversations are not supported; send previous_response_id'),
    prompt: absent('stored prompts are not supported; send instructions'),
    stream: z.boolean().nullish(),
    background: z.boolean().nullish(),
    store: z.boolean().nullish(),
    user: User,
    safety_identifier: User,
    metadata: Metadata,
    tools: z
      .array(
        z.looseObject({
          type: FUNCTION,
          name: z.string().max(64),
          description: z.string().max(4096).nullish(),
          parameters: JsonSchema.nullish(),
        }),
      )
      .max(128)
      .nullish(),
    tool_choice: ResponseToolChoice.nullish(),
    text: z
      .looseObject({
        format: z
          .looseObject({
            type: z.enum(['text', 'json_object', 'json_schema']),
            schema: JsonSchema.optional(),
          })
          .optional(),
      })
      .nullish(),
    reasoning: z.looseObject({ effort: Effort }).nullish(),
  })
  .meta({ id: 'OpenAiResponseRequest' });
export type ResponseRequest = z.infer<typeof ResponseRequest>;

/** Query of `GET /v1/responses/:id`. */
export const RetrieveQuery = z.looseObject({
  stream: z.enum(['true', 'false']).optional(),
  starting_after: z.coerce.number().int().min(0).optional(),
});

/** Objects of OpenAI's API, whose schemas its clients have. */
export const OpenAiObject = z
  .looseObject({ id: z.string(), object: z.string() })
  .meta({ id: 'OpenAiObject' });
export type OpenAiObject = z.infer<typeof OpenAiObject>;

export const OpenAiModels = z
  .object({ object: z.literal('list'), data: z.array(OpenAiObject) })
  .meta({ id: 'OpenAiModels' });

/** An error as OpenAI's clients expect it. */
export const formatError = ({
  status,
  code,
  message,
}: {
  readonly status: number;
  readonly code: string;
  readonly message: string;
}) => ({ error: { message, type: toErrorType(status), param: findParam(code, message), code } });

/** The first invalid field, such as `messages[0].role`. */
function findParam(code: string, message: string): string | null {
  if (code !== 'validation_failed') return null;
  const [field] = /^[\w.]+(?=: )/.exec(message) ?? [];
  return field?.replaceAll(/\.(\d+)(?=\.|$)/g, '[$1]') ?? null;
}

function toErrorType(status: number): string {
  switch (status) {
    case 401:
      return 'authentication_error';
    case 402:
      return 'insufficient_quota';
    case 403:
      return 'permission_error';
    case 429:
      return 'rate_limit_error';
    default:
      return status >= 500 ? 'server_error' : 'invalid_request_error';
  }
}
