import type { ModelTool, ModelToolResult } from '../model.js';
import { reportCapabilities } from './capability-report.js';
import type { Intent } from './intent.js';

const RESULT_LENGTH = 400;

/** Says what the tools answered. */
export const reportToolResults: Intent = ({ results, tools }) => {
  if (results.length === 0) return undefined;
  return { text: results.map((result) => report(result, tools)).join('\n') };
};

function report(
  { name, output, isError }: ModelToolResult,
  tools: ReadonlyMap<string, ModelTool>,
): string {
  const told = name === 'list_capabilities' && reportCapabilities(output, tools.keys());
  if (told) return told;
  const result = readable(output);
  if (isError) return `That did not work: ${name} said ${result || 'nothing'}`;
  return result ? `I have done it: ${result}` : `I have done it with ${name}.`;
}

function readable(output: string): string {
  const text = plainText(output).trim();
  return text.length > RESULT_LENGTH ? `${text.slice(0, RESULT_LENGTH)}…` : text;
}

function plainText(output: string): string {
  try {
    const value: unknown = JSON.parse(output);
    return typeof value === 'string' ? value : output;
  } catch {
    return output;
  }
}
