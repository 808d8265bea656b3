"""What next: files for the tools that rent and launch."""
