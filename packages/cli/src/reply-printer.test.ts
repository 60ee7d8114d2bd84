import type { DoneFrame } from '@sibyl/client';
import { expect, it } from 'vitest';
import { ReplyPrinter } from './reply-printer.js';
import type { Output } from './terminal.js';

/** Prints a turn that waits for these answers. */
function printPause(pending: NonNullable<DoneFrame['pending']>, approvalId?: string) {
  let printed = '';
  const output = { write: (text: string) => (printed += text), dim: (text: string) => text };
  const printer = new ReplyPrinter(output as unknown as Output, 'http://oracle');
  const request = { approvalId, toolName: 'pay' } as never;
  if (approvalId) printer.print({ event: 'approval_request', data: request });
  const data: DoneFrame = { runId: 'r', status: 'interrupted', interrupted: true, pending };
  printer.print({ event: 'done', data });
  return { printed, isAsked: printer.isAsked };
}

it('ReplyPrinter finds that a tool asks a question, unless it asks for approval or another program', () => {
  expect(printPause([{ id: 'q', kind: 'confirmation' }]).isAsked).toBe(true);
  const approval = printPause([{ id: 'a', kind: 'confirmation' }], 'a');
  expect(approval.printed).toContain(
    'pay waits for you: sibyl approvals approve a http://oracle, or deny',
  );
  expect(approval.isAsked).toBe(false);
  expect(printPause([{ id: 'c', kind: 'tool_call' }])).toEqual({ printed: '', isAsked: false });
});
