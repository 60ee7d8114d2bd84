import { useAction, useBrowserTool } from '@sibyl/client/react';
import { lazy, Suspense } from 'react';
import { chooseTheme, type Theme } from '../page/theme.js';
import { chartSchema, formSchema, tableSchema } from './schemas.js';

// Loaded with the first call.
const ChartView = lazy(async () => ({ default: (await import('./chart.js')).ChartView }));
const TableView = lazy(async () => ({ default: (await import('./chart.js')).TableActionView }));
const FormView = lazy(async () => ({ default: (await import('./form.js')).FormActionView }));

/** The page's tools and actions for the agent. */
export function PageActions() {
  useBrowserTool({
    name: 'set_page_colors',
    description: "Changes the color theme of the user's page: light, dark, or the system setting.",
    schema: {
      type: 'object',
      properties: { theme: { type: 'string', enum: ['system', 'light', 'dark'] } },
      required: ['theme'],
      additionalProperties: false,
    },
    run: ({ theme }) => {
      chooseTheme(theme as Theme);
      return { theme };
    },
  });
  useAction({
    name: 'show_table',
    description: 'Shows rows in a table. Use it for data with more than a few rows or columns.',
    schema: tableSchema,
    run: confirmShown,
    render: ({ args }) => (
      <Suspense>
        <TableView args={args} />
      </Suspense>
    ),
  });
  useAction({
    name: 'show_chart',
    description: 'Shows numbers as a bar or line chart. Use it to compare values or show a trend.',
    schema: chartSchema,
    run: confirmShown,
    render: ({ args }) => (
      <Suspense>
        <ChartView args={args} />
      </Suspense>
    ),
  });
  useAction({
    name: 'show_form',
    description:
      "Shows a form. The user's input arrives as their next message, so end your answer after showing it.",
    schema: formSchema,
    run: confirmShown,
    render: ({ args, toolCallId }) => (
      <Suspense>
        <FormView id={toolCallId} args={args} />
      </Suspense>
    ),
  });
  return null;
}

const confirmShown = () => ({ shown: true });
