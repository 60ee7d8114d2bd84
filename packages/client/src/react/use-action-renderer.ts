import type { RenderComponentEvent } from '@sibyl/protocol';
import { type ReactNode, useMemo } from 'react';
import { readArguments } from '../calls/check-arguments.js';
import type { ActionView } from '../calls/page-function.js';
import type { OracleClient } from '../oracle-client.js';
import type { Call } from '../turns/turn.js';
import { useOracle } from './oracle-provider.js';

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
  const args = action && readArguments(action.schema, view.args);
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
