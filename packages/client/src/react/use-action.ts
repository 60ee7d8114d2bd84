import { type ReactNode, useEffect, useRef } from 'react';
import type { Action, ArgumentSchema } from '../calls/page-function.js';
import { useOracle } from './oracle-provider.js';

/** Offers an action to the model while the component is mounted. */
export function useAction<Schema extends ArgumentSchema>(action: Action<Schema, ReactNode>): void {
  const client = useOracle();
  const latest = useRef(action);
  useEffect(() => {
    latest.current = action;
  });
  const { name, description } = action;
  const runs = action.run !== undefined;
  const renders = action.render !== undefined;
  useEffect(
    () =>
      client.addAction<Schema, ReactNode>({
        name,
        description,
        schema: latest.current.schema,
        // The newest, so that they see the state of the last render.
        ...(runs && { run: (args, call) => latest.current.run?.(args, call) }),
        ...(renders && { render: (view) => latest.current.render?.(view) }),
      }),
    [client, name, description, runs, renders],
  );
}
