const PATIENCE_MS = 20_000;

/** Rejects when something takes longer than anybody would wait for it. */
export async function inTime<T>(what: string, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const gaveUp = new Promise<never>((_, reject) => {
    const fault = new Error(`${what} took longer than ${PATIENCE_MS / 1000} s`);
    timer = setTimeout(reject, PATIENCE_MS, fault);
  });
  try {
    return await Promise.race([work, gaveUp]);
  } finally {
    clearTimeout(timer);
  }
}
