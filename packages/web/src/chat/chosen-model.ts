const KEY = 'sibyl-model';

/** The model the user has chosen; none for the oracle's own choice. */
export const chosenModel = (): string | undefined => localStorage.getItem(KEY) ?? undefined;

export function chooseModel(id: string | undefined): void {
  if (id === undefined) localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, id);
}
