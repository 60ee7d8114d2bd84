import { useEffect, useRef } from 'react';
import type { ArgumentSchema, BrowserTool } from '../calls/page-function.js';
import { useOracle } from './oracle-provider.js';

/** Offers a tool to the model while the component is mounted. */
export function useBrowserTool<Schema extends ArgumentSchema>(tool: BrowserTool<Schema>): void {
  const client = useOracle();
  const latest = useRef(tool);
  useEffect(() => {
    latest.current = tool;
  });
  const { name, description } = tool;
  useEffect(
    () =>
      client.addTool({
        name,
        description,
        schema: latest.current.schema,
        // The newest, so that it sees the state of the last render.
        run: (args, call) => latest.current.run(args, call),
      }),
    [client, name, description],
  );
}
