import type {
  CallToolResult,
  ContentBlock,
  GetPromptResult,
  ReadResourceResult,
} from '@modelcontextprotocol/client';
import { mediaResult } from '@sibyl/plugin-kit';

type Part = string | ReturnType<typeof mediaResult>;

/** The result for the model: text, structured content, or a list with files. One that is marked as an error is thrown. */
export function readCallResult(result: CallToolResult): unknown {
  const parts = result.content.map(readContent);
  const text = parts.filter((part) => typeof part === 'string').join('\n');
  if (result.isError) throw new Error(text || 'The tool failed without a reason');
  const files = parts.filter((part) => typeof part !== 'string');
  const { structuredContent } = result;
  if (structuredContent === undefined) return combine(parts);
  return files.length > 0 ? [structuredContent, ...files] : structuredContent;
}

/** The contents of a resource for the model. */
export const readResourceResult = ({ contents }: ReadResourceResult): unknown =>
  combine(contents.map(readResource));

/** The messages of a prompt for the model, each with its role. */
export const readPromptResult = ({ description, messages }: GetPromptResult): unknown => ({
  ...(description && { description }),
  messages: messages.map(({ role, content }) => ({ role, content: readContent(content) })),
});

/** Text alone as text, a file alone as a file, and otherwise all parts in their order. */
function combine(parts: readonly Part[]): unknown {
  if (parts.every((part) => typeof part === 'string')) return parts.join('\n');
  return parts.length === 1 ? parts[0] : parts;
}

function readContent(content: ContentBlock): Part {
  switch (content.type) {
    case 'text':
      return content.text;
    case 'image':
    case 'audio':
      return readFile(content.data, content.mimeType, content.type);
    case 'resource':
      return readResource(content.resource);
    case 'resource_link':
      return `[resource ${content.uri}: ${content.title ?? content.name}]`;
    default:
      content satisfies never;
      return '[unknown content]';
  }
}

function readResource(resource: ReadResourceResult['contents'][number]): Part {
  if ('text' in resource) return resource.text;
  return readFile(resource.blob, resource.mimeType, resource.uri);
}

const MEDIA_TYPE = /^[\w.+-]{1,100}\/[\w.+-]{1,100}$/;

function readFile(base64: string, mimeType: string | undefined, description: string): Part {
  const [type = ''] = (mimeType ?? '').split(';');
  return mediaResult({
    mediaType: MEDIA_TYPE.test(type.trim())
      ? type.trim().toLowerCase()
      : 'application/octet-stream',
    data: new Uint8Array(Buffer.from(base64, 'base64')),
    description: description.slice(0, 200),
  });
}
