import type { CallToolResult } from '@ai-sdk/mcp';

type Content = { readonly type: string; readonly [field: string]: unknown };

/** What the model is told of a result; one marked as an error is thrown. */
export function resultOf(result: CallToolResult): unknown {
  const { isError, structuredContent, toolResult } = result as Record<string, unknown>;
  const content = ((result as { content?: unknown }).content ?? []) as readonly Content[];
  const text = content.map(describe).join('\n');
  if (isError) throw new Error(text || 'The tool failed without saying why');
  return structuredContent ?? toolResult ?? text;
}

function describe(content: Content): string {
  switch (content.type) {
    case 'text':
      return String(content.text);
    case 'image':
    case 'audio':
      return `[${content.type}, ${content.mimeType}]`;
    case 'resource': {
      const { uri, text } = content.resource as { uri: string; text?: string };
      return text ?? `[resource ${uri}]`;
    }
    case 'resource_link':
      return `[resource ${content.uri}]`;
    default:
      return `[${content.type}]`;
  }
}
