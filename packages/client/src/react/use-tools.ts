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

/** Makes a browser tool available to the model while the component is mounted. */
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
        // The latest function, so that it sees the current state.
        run: (args, call) => latest.current.run(args, call),
      }),
    [client, name, description],
  );
}

/** Makes an action available to the model while the component is mounted. */
export function useAction<Schema extends ArgumentSchema>(action: Action<Schema, ReactNode>): void {
  const client = useOracle();
  const latest = useRef(action);
  useEffect(() => {
    latest.current = action;
  });
  const { name, description } = action;
  const hasRun = action.run !== undefined;
  const hasRender = action.render !== undefined;
  useEffect(
    () =>
      client.addAction<Schema, ReactNode>({
        name,
        description,
        schema: latest.current.schema,
        // The latest functions, so that they see the current state.
        ...(hasRun && { run: (args, call) => latest.current.run?.(args, call) }),
        ...(hasRender && { render: (view) => latest.current.render?.(view) }),
      }),
    [client, name, description, hasRun, hasRender],
  );
}

/** Renders calls and components; null without a matching action. */
export interface ActionRenderer {
  renderCall(call: Call): ReactNode;
  renderComponent(component: RenderComponentEvent): ReactNode;
}

/** Renders calls with the actions of `useAction`, also for stored messages. */
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

/** Returns null if the model sent invalid arguments. */
function render(client: OracleClient, name: string, view: ActionView): ReactNode {
  const action = client.action(name);
  const args = action && tryParseArguments(action.schema, view.args);
  if (!args) return null;
  return (action?.render?.({ ...view, args: args.value as never }) as ReactNode) ?? null;
}

/** Results are stored as JSON text, which may be truncated. */
function readResult(output: string): unknown {
  try {
    return JSON.parse(output);
  } catch {
    return output;
  }
}
