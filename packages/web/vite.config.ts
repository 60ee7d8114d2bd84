import react from '@vitejs/plugin-react';
import { defaultClientConditions, defineConfig } from 'vite';

// Relative addresses, so that the page works behind any prefix a proxy gives it.
export default defineConfig({
  base: './',
  plugins: [react()],
  resolve: { conditions: ['sibyl-source', ...defaultClientConditions] },
  build: {
    target: 'es2023',
    // Of the packages that the page contains: most require that their license comes with them.
    license: { fileName: 'licenses.md' },
    // Relative to the folder of this file.
    rolldownOptions: {
      input: ['index.html', 'operator.html'],
      // What both pages load compresses better in one file.
      output: {
        codeSplitting: { groups: [{ name: 'shared', tags: ['$initial'], minShareCount: 2 }] },
      },
    },
    // The content security policy allows no data: scripts or styles.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // In kB: the layout of large diagrams, which loads with the first of them.
    chunkSizeWarningLimit: 1600,
  },
});
