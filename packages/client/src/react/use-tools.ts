import type { RenderComponentEvent } from '@sibyl/protocol';
import { type ReactNode, useEffect, useMemo, useRef } from 'react';
import {
  type Action,
  type ActionView,
  type ArgumentSchema,
  type BrowserTool,
  tryParseArguments,
} from '../browser-tools/tool-registry.js';
import type { OracleClient } from '../oracle-client.js';
import type { Call } from '../turns/turn.js';
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

/** Shows what actions with `render` have to show; nothing for anything else. */
export interface ActionRenderer {
  renderCall(call: Call): ReactNode;
  renderComponent(component: RenderComponentEvent): ReactNode;
}

/** Renders calls by the actions of `useAction`, those of stored messages too. */
export function useActionRenderer(): ActionRenderer {
  const client = useOracle();
  return useMemo(
    () => ({
      renderCall: ({ id, name, args, status, output, error }) =>
        render(client, name, {
          toolCallId: id,
          status,
          args,
          ...(output !== undefined && { result: readResult(output) }),
          ...(error !== undefined && { error }),
        }),
      renderComponent: ({ eventId, componentName, args = {}, status }) =>
        render(client, componentName, {
          toolCallId: eventId,
          status: status === 'isRunning' ? 'running' : status,
          args,
        }),
    }),
    [client],
  );
}

/** What the model sent is not always what the action takes: then there is nothing to show. */
function render(client: OracleClient, name: string, view: ActionView): ReactNode {
  const action = client.action(name);
  const args = action && tryParseArguments(action.schema, view.args);
  if (!args) return null;
  return (action?.render?.({ ...view, args: args.value as never }) as ReactNode) ?? null;
}

/** Results are kept as JSON text; older ones may have been shortened. */
function readResult(output: string): unknown {
  try {
    return JSON.parse(output);
  } catch {
    return output;
  }
}
