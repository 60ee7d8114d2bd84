import type { DoneFrame } from '@sibyl/client';
import { expect, it } from 'vitest';
import { ReplyPrinter } from './reply-printer.js';
import type { Output } from './terminal.js';

/** What is printed for a turn that waits for these answers. */
function printPause(pending: NonNullable<DoneFrame['pending']>, approvalId?: string): string {
  let printed = '';
  const output = { write: (text: string) => (printed += text), dim: (text: string) => text };
  const printer = new ReplyPrinter(output as unknown as Output);
  const request = { approvalId, toolName: 'pay' } as never;
  if (approvalId) printer.print({ event: 'approval_request', data: request });
  const data: DoneFrame = { runId: 'r', status: 'interrupted', interrupted: true, pending };
  printer.print({ event: 'done', data });
  return printed;
}

it('ReplyPrinter says that a tool asks a question, unless it asks for approval or another program', () => {
  expect(printPause([{ id: 'q', kind: 'confirmation' }])).toMatch(/A tool asks you a question/);
  const approval = printPause([{ id: 'a', kind: 'confirmation' }], 'a');
  expect(approval).toContain('pay waits for you');
  expect(approval).not.toContain('question');
  expect(printPause([{ id: 'c', kind: 'tool_call' }])).toBe('');
});
