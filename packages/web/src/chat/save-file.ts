import type { Message, OracleClient } from '@sibyl/client';
import { formatDateTime } from '../i18n/format.js';
import { t } from '../i18n/i18n.js';
import { showToast } from '../ui/toasts.js';

/** Saves a file of the user, which only a signed request can read. */
export async function openFile({ files }: OracleClient, fileId: string): Promise<void> {
  try {
    const [{ name }, response] = await Promise.all([files.get(fileId), files.download(fileId)]);
    saveAs(await response.blob(), name);
  } catch {
    showToast({ text: t('chat.file.gone') });
  }
}

/** Saves bytes as a file on the user's device. */
export function saveAs(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  // The browser has taken over by then.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

interface NamedSession {
  readonly sessionId: string;
  readonly title: string;
}

/** Saves a conversation as a Markdown file, or hands it to the device's share sheet. */
export async function exportSession(client: OracleClient, session: NamedSession): Promise<void> {
  const messages = await client.messages.list(session.sessionId);
  const name = `${toFileName(session.title)}.md`;
  const file = new File([toMarkdown(session.title, messages)], name, { type: 'text/markdown' });
  const isTouch = matchMedia('(pointer: coarse)').matches;
  if (isTouch && navigator.canShare?.({ files: [file] })) {
    // The user may close the share sheet.
    await navigator.share({ files: [file], title: session.title }).catch(() => undefined);
    return;
  }
  saveAs(file, name);
}

function toMarkdown(title: string, messages: readonly Message[]): string {
  const parts = messages.map(({ type, content, createdAt, attachments = [] }) => {
    const author = t(type === 'human' ? 'chat.you' : 'chat.answer');
    const files = attachments.map(({ filename }) => `- ${filename}`);
    return [`## ${author}, ${formatDateTime(createdAt)}`, ...files, content].join('\n\n');
  });
  return `${[`# ${title}`, ...parts].join('\n\n')}\n`;
}

/** Without characters that file systems do not allow. */
const toFileName = (title: string): string =>
  title
    .replace(/[\\/:*?"<>|\p{Cc}]+/gu, ' ')
    .trim()
    .slice(0, 80) || 'conversation';
