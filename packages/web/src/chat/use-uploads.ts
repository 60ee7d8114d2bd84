import type { Attachment, OracleClient } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { useEffect, useRef, useState } from 'react';
import { t } from '../i18n/i18n.js';
import { usePage } from '../page/page-context.js';

/** The most files of one message. */
const MAX_FILES = 10;

/** A file on its way to the oracle. */
export interface Upload {
  readonly id: string;
  readonly file: File;
  /** From 0 to 1. */
  readonly progress: number;
  readonly error?: string;
}

export interface Uploads {
  readonly uploads: readonly Upload[];
  readonly isUploading: boolean;
  add(files: readonly File[]): void;
  /** Cancels an upload, or removes one that failed. */
  remove(id: string): void;
}

/** Uploads files; `onDone` receives each one when the oracle has it. */
export function useUploads(attached: number, onDone: (file: Attachment) => void): Uploads {
  const client = useOracle();
  const { settings } = usePage();
  const [uploads, setUploads] = useState<readonly Upload[]>([]);
  const cancels = useRef(new Map<string, AbortController>());
  const done = useRef(onDone);
  useEffect(() => {
    done.current = onDone;
  });
  const change = (id: string, changed: Partial<Upload>) =>
    setUploads((all) => all.map((each) => (each.id === id ? { ...each, ...changed } : each)));
  const drop = (id: string) => setUploads((all) => all.filter((each) => each.id !== id));

  const upload = async ({ id, file }: Upload) => {
    const cancel = new AbortController();
    cancels.current.set(id, cancel);
    try {
      const onProgress = (progress: number) => change(id, { progress });
      const stored =
        (await uploadToMatrix(settings.matrixBaseUrl, file)) ??
        (await uploadTo(client, file, { signal: cancel.signal, onProgress }));
      done.current(stored);
      drop(id);
    } catch (error) {
      if (!cancel.signal.aborted) change(id, { error: (error as Error).message });
    } finally {
      cancels.current.delete(id);
    }
  };
  const add = (files: readonly File[]) => {
    const room = MAX_FILES - attached - uploads.length;
    const added = files.map((file, index): Upload => {
      const base = { id: crypto.randomUUID(), file, progress: 0 };
      return index < room
        ? base
        : { ...base, error: t('chat.files.tooMany', { count: MAX_FILES }) };
    });
    setUploads((all) => [...all, ...added]);
    for (const each of added) if (!each.error) void upload(each);
  };
  const remove = (id: string) => {
    cancels.current.get(id)?.abort();
    drop(id);
  };
  const isUploading = uploads.some(({ error }) => !error);
  return { uploads, isUploading, add, remove };
}

/** Undefined without a homeserver on which the user is signed in. */
async function uploadToMatrix(
  homeServer: string | undefined,
  file: File,
): Promise<Attachment | undefined> {
  if (!homeServer) return undefined;
  const { readMatrixSession, uploadFile } = await import('../panels/matrix-panel.js');
  const matrix = readMatrixSession(homeServer);
  return matrix && uploadFile(matrix, file);
}

async function uploadTo(
  client: OracleClient,
  file: File,
  options: { readonly signal: AbortSignal; readonly onProgress: (share: number) => void },
): Promise<Attachment> {
  const { fileId, name, mediaType, size } = await client.files.upload(file, {
    ...options,
    name: file.name,
  });
  return { fileId, filename: name, mimetype: mediaType, size };
}
