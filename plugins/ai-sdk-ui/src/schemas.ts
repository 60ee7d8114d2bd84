import { JsonObject, limitedList } from '@sibyl/protocol';
import { z } from 'zod';

const Approval = z.looseObject({
  id: z.string(),
  approved: z.boolean().optional(),
  reason: z.string().optional(),
});

/** A part of a message; the host reads texts and what became of calls. */
const Part = z.looseObject({
  type: z.string(),
  text: z.string().optional(),
  toolCallId: z.string().optional(),
  toolName: z.string().optional(),
  state: z.string().optional(),
  output: z.unknown().optional(),
  errorText: z.string().optional(),
  approval: Approval.optional(),
});
export type Part = z.infer<typeof Part>;

const Message = z.looseObject({
  id: z.string(),
  role: z.enum(['system', 'user', 'assistant']),
  parts: limitedList(Part, { max: 10_000 }),
});
export type Message = z.infer<typeof Message>;

const ClientToolSchema = z.looseObject({
  description: z.string().optional(),
  parameters: JsonObject.optional().describe('JSON Schema of the input'),
  inputSchema: JsonObject.optional().describe('Another name for `parameters`'),
});

/** Body of `POST /ui/chat`: what `DefaultChatTransport` sends, and what its option `body` may add. */
export const ChatRequest = z
  .looseObject({
    id: z.string().min(1).max(200).describe('The chat; it becomes a session on first use'),
    messages: limitedList(Message, { min: 1, max: 10_000 }),
    trigger: z.enum(['submit-message', 'regenerate-message']).optional(),
    messageId: z.string().nullish(),
    model: z.string().optional().describe('An id from `/models`'),
    system: z.string().optional().describe('Instructions for this turn'),
    tools: z
      .record(z.string(), ClientToolSchema)
      .optional()
      .describe('Tools that the client runs: name → description and parameters'),
  })
  .meta({ id: 'UiChatRequest' });
export type ChatRequest = z.infer<typeof ChatRequest>;
