import type { NewInterrupt } from '../../src/store/runs/pauses.js';

type Changes = Partial<NewInterrupt>;

/** A question of a tool. */
export const createQuestion = (id: string, changes: Changes = {}): NewInterrupt => ({
  id,
  kind: 'input_required',
  callId: `call of ${id}`,
  path: '',
  schema: {},
  expiresInMs: 60_000,
  ...changes,
});

/** A call that waits for approval. */
export const createApproval = (
  id: string,
  {
    request = {},
    argsHash = 'hash',
    ...changes
  }: Changes & { readonly request?: object; readonly argsHash?: string } = {},
): NewInterrupt =>
  createQuestion(id, {
    kind: 'confirmation',
    approval: {
      call: id,
      call_id: `call of ${id}`,
      tool: 'pay',
      plugin: 'bank',
      args_hash: argsHash,
      required_by: 'tool',
      request,
    },
    ...changes,
  });

/** A mail that waits an hour for the approval to be sent. */
export const createMailApproval = (id: string, inputSchema = {}): NewInterrupt =>
  createQuestion(id, {
    kind: 'confirmation',
    callId: `call-${id}`,
    expiresInMs: 3_600_000,
    approval: {
      call: '1',
      call_id: `call-${id}`,
      tool: 'send',
      plugin: 'mail',
      args_hash: 'hash',
      required_by: 'tool',
      request: { args: { to: id }, inputSchema },
    },
  });
