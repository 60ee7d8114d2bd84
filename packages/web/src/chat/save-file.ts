import type { OracleClient } from '@sibyl/client';
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
