import { type Attachment, type OracleClient, OracleClientError } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { useEffect, useRef, useState } from 'react';
import { explainError } from '../i18n/explain-error.js';
import { t } from '../i18n/i18n.js';
import { usePage } from '../page/page-context.js';
import { showToast } from '../ui/toasts.js';

/** The most files of one message. */
const MAX_FILES = 10;

/** A file on its way to the oracle. */
export interface Upload {
  readonly id: string;
  readonly file: File;
  /** From 0 to 1. */
  readonly progress: number;
  readonly error?: string | undefined;
  /** Whether another attempt may succeed. */
  readonly mayPass?: boolean;
}

export interface Uploads {
  /** Those that failed stay until the user has decided about them; a message is not sent without them. */
  readonly uploads: readonly Upload[];
  add(files: readonly File[]): void;
  /** Tries one that failed again. */
  retry(upload: Upload): void;
  /** Cancels an upload, or removes one that failed. */
  remove(id: string): void;
}

/** Uploads files; `onDone` receives each one when the oracle has it. */
export function useUploads(attached: number, onDone: (file: Attachment) => void): Uploads {
  const client = useOracle();
  const { settings } = usePage();
  const [uploads, setUploads] = useState<readonly Upload[]>([]);
  const cancels = useRef(new Map<string, Running>());
  const done = useRef(onDone);
  useEffect(() => {
    done.current = onDone;
  });
  useCancelAtEnd(cancels.current);
  const change = (id: string, changed: Partial<Upload>) =>
    setUploads((all) => all.map((each) => (each.id === id ? { ...each, ...changed } : each)));
  const drop = (id: string) => setUploads((all) => all.filter((each) => each.id !== id));

  const upload = async ({ id, file }: Upload) => {
    const cancel = new AbortController();
    const { signal } = cancel;
    cancels.current.set(id, { cancel, file });
    try {
      const onProgress = (progress: number) => change(id, { progress });
      const homeServer = settings.matrixBaseUrl;
      const stored =
        (await uploadToMatrix(client, file, { signal, homeServer })) ??
        (await uploadTo(client, file, { signal, onProgress }));
      if (signal.aborted) return;
      done.current(stored);
      drop(id);
    } catch (error) {
      const failure = (await isReadable(file))
        ? { error: describe(error), mayPass: mayPass(error) }
        : { error: t('chat.files.unreadable'), mayPass: false };
      if (!signal.aborted) change(id, failure);
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
  const retry = (failed: Upload) => {
    change(failed.id, { error: undefined, progress: 0 });
    void upload(failed);
  };
  useOnReconnect(() => {
    for (const each of uploads) if (each.error && each.mayPass) retry(each);
  });
  const remove = (id: string) => {
    cancels.current.get(id)?.cancel.abort();
    drop(id);
  };
  useLeaveWarning(uploads.some(({ error }) => !error));
  return { uploads, add, retry, remove };
}

interface Running {
  readonly cancel: AbortController;
  readonly file: File;
}

/** The draft belongs to the next composer then. */
function useCancelAtEnd(running: ReadonlyMap<string, Running>): void {
  useEffect(
    () => () => {
      for (const { cancel, file } of running.values()) {
        cancel.abort();
        showToast({ text: t('chat.files.stopped', { name: file.name }) });
      }
    },
    [running],
  );
}

/** The browser asks before the user leaves the page in the middle of an upload. */
export function useLeaveWarning(isUploading: boolean): void {
  useEffect(() => {
    if (!isUploading) return;
    const warn = (event: BeforeUnloadEvent) => event.preventDefault();
    window.addEventListener('beforeunload', warn);
    return () => window.removeEventListener('beforeunload', warn);
  }, [isUploading]);
}

/** As for messages that were not sent. */
const mayPass = (error: unknown): boolean =>
  error instanceof OracleClientError &&
  (error.code === 'network_error' || error.status === 429 || (error.status ?? 0) >= 500);

const describe = (error: unknown): string =>
  navigator.onLine ? explainError(error as Error) : t('chat.unsent.offline');

/** Calls a function when the device has a network again. */
function useOnReconnect(listener: () => void): void {
  const latest = useRef(listener);
  useEffect(() => {
    latest.current = listener;
  });
  useEffect(() => {
    const notify = () => latest.current();
    window.addEventListener('online', notify);
    return () => window.removeEventListener('online', notify);
  }, []);
}

/** Folders are not, nor files that were removed or changed since; browsers fail then as without a network. */
const isReadable = (file: File): Promise<boolean> =>
  file
    .slice(0, 1)
    .arrayBuffer()
    .then(
      () => true,
      () => false,
    );

/** Undefined without a homeserver on which the user is signed in. */
async function uploadToMatrix(
  client: OracleClient,
  file: File,
  options: { readonly signal: AbortSignal; readonly homeServer: string | undefined },
): Promise<Attachment | undefined> {
  const { signal, homeServer } = options;
  if (!homeServer) return undefined;
  const { readMatrixSession, uploadFile } = await import('../panels/matrix-panel.js');
  const matrix = readMatrixSession(homeServer, client.did);
  return matrix && uploadFile(matrix, file, signal);
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
