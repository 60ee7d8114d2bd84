import { useAction, useBrowserTool } from '@sibyl/client/react';
import { chooseTheme, type Theme } from '../page/theme.js';
import { Chart, chartSchema, readChart } from './chart.js';
import { FormView, formSchema, readForm } from './form.js';
import { readTable, TableView, tableSchema } from './table.js';

/** The page's tools and actions for the agent. */
export function PageActions() {
  useBrowserTool({
    name: 'set_page_colours',
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
    run: (args) => confirmShown(readTable(args)),
    render: ({ args }) => <TableView {...readTable(args)} />,
  });
  useAction({
    name: 'show_chart',
    description: 'Shows numbers as a bar or line chart. Use it to compare values or show a trend.',
    schema: chartSchema,
    run: (args) => confirmShown(readChart(args)),
    render: ({ args }) => <Chart {...readChart(args)} />,
  });
  useAction({
    name: 'show_form',
    description:
      "Shows a form. The user's input arrives as their next message, so end your answer after showing it.",
    schema: formSchema,
    run: (args) => confirmShown(readForm(args)),
    render: ({ args, toolCallId }) => <FormView id={toolCallId} {...readForm(args)} />,
  });
  return null;
}

const confirmShown = (_: unknown) => ({ shown: true });
