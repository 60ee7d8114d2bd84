import { registerHooks } from 'node:module';

// Lets a child process run the sources as they are: Node drops the types but not the `.js` endings.
registerHooks({
  resolve: (specifier, context, next) =>
    specifier.startsWith('.') && context.parentURL?.endsWith('.ts')
      ? next(specifier.replace(/\.js$/, '.ts'), context)
      : next(specifier, context),
});
