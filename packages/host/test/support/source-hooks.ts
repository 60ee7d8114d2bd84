import { registerHooks } from 'node:module';

// Allows a child process to run the sources: Node removes the types but does not resolve `.js` to `.ts`.
registerHooks({
  resolve: (specifier, context, next) =>
    specifier.startsWith('.') && context.parentURL?.endsWith('.ts')
      ? next(specifier.replace(/\.js$/, '.ts'), context)
      : next(specifier, context),
});
